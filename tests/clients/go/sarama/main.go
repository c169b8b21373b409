// Command sarama drives IBM's sarama against a broker: produce or consume. It prints "ok ..." last, or exits 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	verb, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 100
	config.Metadata.Retry.Max = 400 // its default gives a broker less than a second to come back
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	var err error
	switch verb {
	case "produce": // BOOTSTRAP TOPIC FROM COUNT CODECS: COUNT records with each
		from, count := number(os.Args[4]), number(os.Args[5])
		for part, codec := range strings.Split(os.Args[6], ",") {
			if err = config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
				break
			}
			if err = produce(config, bootstrap, topic, from+part*count, count); err != nil {
				break
			}
		}
	case "consume": // BOOTSTRAP TOPIC GROUP COUNT
		err = consume(config, bootstrap, topic, os.Args[4], number(os.Args[5]))
	default:
		err = fmt.Errorf("unknown verb %q", verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func produce(config *sarama.Config, bootstrap, topic string, from, count int) error {
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for i := from; i < from+count; i++ {
		n := strconv.Itoa(i)
		batch = append(batch, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("key-" + strconv.Itoa(i%7)),
			Value: sarama.StringEncoder("value-" + n), Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(n)}}})
		if len(batch) == 500 || i == from+count-1 {
			if err := producer.SendMessages(batch); err != nil {
				return explained(err)
			}
			fmt.Println("sent", i)
			batch = nil
		}
	}
	fmt.Println("ok produced", count)
	return nil
}

// explained names what the client says of each message; its own text only counts them.
func explained(err error) error {
	var all sarama.ProducerErrors
	if errors.As(err, &all) {
		for _, one := range all {
			err = fmt.Errorf("%w\n%v: %w", err, one.Msg.Value, one.Err)
		}
	}
	return err
}

type handler struct {
	want int
	seen int
	last map[string]int
	done context.CancelFunc
	err  error
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim runs once per partition; the test's stream has one, so the counters need no lock.
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		n := number(strings.TrimPrefix(string(message.Value), "value-"))
		if before, there := h.last[string(message.Key)]; there && n <= before {
			h.err = fmt.Errorf("key %s: %d after %d", message.Key, n, before)
			h.done()
		}
		h.last[string(message.Key)] = n
		session.MarkMessage(message, "")
		h.seen++
		if h.seen == h.want {
			session.Commit()
			h.done()
		}
	}
	return nil
}

func consume(config *sarama.Config, bootstrap, topic, group string, count int) error {
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	h := &handler{want: count, last: map[string]int{}, done: cancel}
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if h.err != nil {
		return h.err
	}
	if h.seen < count {
		return fmt.Errorf("saw only %d of %d", h.seen, count)
	}
	fmt.Println("ok consumed", h.seen)
	return nil
}
