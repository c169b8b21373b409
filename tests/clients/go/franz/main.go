// Command franz drives franz-go against a broker: produce, consume or admin. It prints "ok ..." last, or exits 1.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	verb, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	var err error
	switch verb {
	case "produce": // BOOTSTRAP TOPIC FROM COUNT CODECS: COUNT records with each
		from, count := number(os.Args[4]), number(os.Args[5])
		for part, codec := range strings.Split(os.Args[6], ",") {
			if err = produce(ctx, bootstrap, topic, from+part*count, count, codec); err != nil {
				break
			}
		}
	case "consume": // BOOTSTRAP TOPIC GROUP COUNT
		err = consume(ctx, bootstrap, topic, os.Args[4], number(os.Args[5]))
	case "admin": // BOOTSTRAP TOPIC
		err = admin(ctx, bootstrap, topic)
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

func codecOf(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(ctx context.Context, bootstrap, topic string, from, count int, codec string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecOf(codec)), kgo.ProducerLinger(2*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, count)
	for i := from; i < from+count; i++ {
		n := strconv.Itoa(i)
		record := &kgo.Record{Topic: topic, Key: []byte("key-" + strconv.Itoa(i%7)), Value: []byte("value-" + n),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(n)}}}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { failed <- err })
		if i%500 == 0 {
			fmt.Println("sent", i)
		}
	}
	for range count {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Println("ok produced", count)
	return nil
}

func consume(ctx context.Context, bootstrap, topic, group string, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	last := map[string]int{}
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("after %d records: %w", seen, err)
		}
		var wrong error
		fetches.EachRecord(func(record *kgo.Record) {
			n := number(strings.TrimPrefix(string(record.Value), "value-"))
			if before, there := last[string(record.Key)]; there && n <= before {
				wrong = fmt.Errorf("key %s: %d after %d", record.Key, n, before)
			}
			last[string(record.Key)] = n
			seen++
		})
		if wrong != nil {
			return wrong
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
	fmt.Println("ok consumed", count)
	return nil
}

func admin(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
		return err
	}
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	if len(topics[topic].Partitions) != 3 {
		return fmt.Errorf("expected 3 partitions, have %d", len(topics[topic].Partitions))
	}
	if _, err := adm.ListEndOffsets(ctx, topic); err != nil {
		return err
	}
	groups, err := adm.DescribeGroups(ctx)
	if err != nil {
		return err
	}
	if err := groups.Error(); err != nil {
		return err
	}
	if _, err := adm.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	fmt.Println("ok admin", len(groups))
	return nil
}
