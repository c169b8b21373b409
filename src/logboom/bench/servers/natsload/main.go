// Load for a subject of NATS that a stream of JetStream, or somebody else, takes messages of: publish, consume, or both on
// a schedule. Prints one JSON object.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

const waitAtMost = 10 * time.Minute

var (
	url      = flag.String("url", "nats://127.0.0.1:4222", "server")
	mode     = flag.String("mode", "produce", "create | produce | consume | latency | delete; plain | window | sync: see subject.go")
	stream   = flag.String("stream", "bench", "stream, and the subject it listens to")
	messages = flag.Int("messages", 0, "how many; 0: by time")
	seconds  = flag.Float64("seconds", 5, "how long, where no count is given")
	size     = flag.Int("size", 256, "bytes of a message")
	inFlight = flag.Int("in-flight", 4000, "publishes that wait for their ack")
	rate     = flag.Int("rate", 3000, "messages a second (latency)")
	replicas = flag.Int("replicas", 1, "copies of a stream (create)")
	counted  = flag.Bool("counted", true, "ask JetStream afterwards whether its stream got all (produce)")
	warmUp   = flag.Float64("warm-up", 3, "seconds that are sent and not counted (latency)")
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect() (*nats.Conn, nats.JetStreamContext) {
	conn, err := nats.Connect(*url, nats.Timeout(10*time.Second))
	must(err)
	js, err := conn.JetStream(nats.PublishAsyncMaxPending(*inFlight), nats.MaxWait(60*time.Second),
		nats.PublishAsyncErrHandler(func(_ nats.JetStream, _ *nats.Msg, err error) { must(err) }))
	must(err)
	return conn, js
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func payload() []byte {
	data := make([]byte, *size)
	for n := range data {
		data[n] = byte((n*167 + 13) % 251)
	}
	return data
}

func report(result map[string]any) {
	result["client_cpu_s"] = cpuSeconds()
	must(json.NewEncoder(os.Stdout).Encode(result))
}

// publish waits where as many as allowed wait for their ack: the client itself gives up after 200 ms.
func publish(js nats.JetStreamContext, data []byte) {
	start := time.Now()
	_, err := js.PublishAsync(*stream, data)
	for errors.Is(err, nats.ErrTooManyStalledMsgs) && time.Since(start) < waitAtMost {
		_, err = js.PublishAsync(*stream, data)
	}
	must(err)
}

func streamMessages(js nats.JetStreamContext) uint64 {
	if !*counted {
		return 0
	}
	info, err := js.StreamInfo(*stream)
	must(err)
	return info.State.Msgs
}

func produce() {
	_, js := connect()
	data := payload()
	before := streamMessages(js)
	start := time.Now()
	sent := 0
	for *messages == 0 || sent < *messages {
		if *messages == 0 && sent%64 == 0 && time.Since(start).Seconds() > *seconds {
			break
		}
		publish(js, data)
		sent++
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(waitAtMost):
		must(fmt.Errorf("acks are missing"))
	}
	took := time.Since(start).Seconds()
	if got := streamMessages(js) - before; *counted && got != uint64(sent) {
		must(fmt.Errorf("%d messages were sent, the stream got %d", sent, got))
	}
	report(map[string]any{"records": sent, "seconds": took, "records_per_s": float64(sent) / took,
		"mb_per_s": float64(sent) * float64(*size) / took / 1e6})
}

func consume() {
	_, js := connect()
	info, err := js.StreamInfo(*stream)
	must(err)
	total := int64(info.State.Msgs)
	done := make(chan struct{})
	seen := atomic.Int64{}
	start := time.Now()
	_, err = js.Subscribe(*stream, func(*nats.Msg) {
		if seen.Add(1) == total {
			close(done)
		}
	}, nats.OrderedConsumer(), nats.DeliverAll())
	must(err)
	select {
	case <-done:
	case <-time.After(waitAtMost):
		must(fmt.Errorf("%d of %d messages came", seen.Load(), total))
	}
	took := time.Since(start).Seconds()
	report(map[string]any{"records": total, "seconds": took, "records_per_s": float64(total) / took,
		"mb_per_s": float64(total) * float64(*size) / took / 1e6})
}

// The schedule is open: a message's latency counts from when it was meant to be sent.
func latency() {
	_, reader := connect()
	_, js := connect()
	total := int((*warmUp + *seconds) * float64(*rate))
	skip := int(*warmUp * float64(*rate))
	latencies := make([]int64, 0, total)
	done := make(chan struct{})
	seen := 0
	began := time.Now()
	_, err := reader.Subscribe(*stream, func(m *nats.Msg) {
		late := time.Since(began).Nanoseconds() - int64(binary.BigEndian.Uint64(m.Data))
		seen++
		if seen > skip {
			latencies = append(latencies, max(1, late/1000))
		}
		if seen == total {
			close(done)
		}
	}, nats.OrderedConsumer(), nats.DeliverNew())
	must(err)
	gap := time.Second / time.Duration(*rate)
	first := time.Since(began) + 50*time.Millisecond
	worst := time.Duration(0)
	for n := range total {
		meant := first + time.Duration(n)*gap
		if left := meant - time.Since(began); left > 0 {
			time.Sleep(left)
		}
		worst = max(worst, time.Since(began)-meant)
		publish(js, stamped(meant))
	}
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		must(fmt.Errorf("%d of %d messages came: the rate is not held", seen, total))
	}
	report(map[string]any{"latencies_us": latencies, "schedule_missed_by_s": worst.Seconds()})
}

func stamped(meant time.Duration) []byte {
	data := make([]byte, *size)
	binary.BigEndian.PutUint64(data, uint64(meant.Nanoseconds()))
	return data
}

func main() {
	flag.Parse()
	switch *mode {
	case "create":
		_, js := connect()
		_, err := js.AddStream(&nats.StreamConfig{Name: *stream, Subjects: []string{*stream}, Storage: nats.FileStorage,
			Replicas: *replicas}, nats.MaxWait(60*time.Second))
		must(err)
		report(map[string]any{})
	case "delete":
		_, js := connect()
		must(js.DeleteStream(*stream))
		report(map[string]any{})
	case "produce":
		produce()
	case "consume":
		consume()
	case "latency":
		latency()
	case "plain":
		plain()
	case "window":
		window()
	case "sync":
		synchronous()
	default:
		must(fmt.Errorf("unknown mode %s", *mode))
	}
}
