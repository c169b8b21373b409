// Loads that need nothing of JetStream's API: whoever takes the messages of the subject answers those that ask for it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const answerAtMost = 30 * time.Second

var (
	every = flag.Int("every", 500, "which messages ask for an answer, so that the publisher does not run away (plain)")
	ahead = flag.Int("ahead", 64, "how many of these may wait for it (plain)")
)

// answered fails where an answer says that the message was not taken.
func answered(answer *nats.Msg) {
	if !bytes.Contains(answer.Data, []byte(`"seq"`)) || bytes.Contains(answer.Data, []byte(`"error"`)) {
		must(fmt.Errorf("not taken: %q %v", answer.Data, answer.Header))
	}
}

// plain publishes without acks but for a few: what is behind an acked message was taken before it, or is counted as lost
// by whoever counts the stream.
func plain() {
	conn, _ := connect()
	data := payload()
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	must(err)
	waiting, sent := 0, 0
	next := func() {
		answer, err := answers.NextMsg(answerAtMost)
		must(err)
		answered(answer)
		waiting--
	}
	start := time.Now()
	for time.Since(start).Seconds() < *seconds {
		for range *every - 1 {
			must(conn.Publish(*stream, data))
		}
		must(conn.PublishRequest(*stream, inbox, data))
		sent += *every
		for waiting++; waiting >= *ahead; {
			next()
		}
	}
	for waiting > 0 {
		next()
	}
	took := time.Since(start).Seconds()
	report(map[string]any{"records": sent, "seconds": took, "records_per_s": float64(sent) / took,
		"mb_per_s": float64(sent) * float64(*size) / took / 1e6})
}

// token makes a reply subject of its own of each message, all of one length.
func token(to []byte, number int) {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	for place := len(to) - 1; place >= 0; place-- {
		to[place] = digits[number%len(digits)]
		number /= len(digits)
	}
}

// window publishes with a reply subject for each message, and keeps so many of them in flight; each is acked by itself.
// As js.PublishAsync does it, without its futures and timers, which cost more than a server's part of the work.
func window() {
	conn, _ := connect()
	data := payload()
	var acked atomic.Int64
	wake := make(chan struct{}, 1)
	reply := []byte(conn.NewInbox() + ".00000000")
	_, err := conn.Subscribe(string(reply[:len(reply)-8])+"*", func(answer *nats.Msg) {
		answered(answer)
		acked.Add(1)
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	must(err)
	lastAck := time.NewTimer(answerAtMost)
	await := func(count int) {
		for acked.Load() < int64(count) {
			select {
			case <-wake:
				lastAck.Reset(answerAtMost)
			case <-lastAck.C:
				must(errors.New("acks are missing"))
			}
		}
	}
	sent := 0
	start := time.Now()
	for time.Since(start).Seconds() < *seconds {
		for range 64 {
			await(sent + 1 - *inFlight)
			token(reply[len(reply)-8:], sent)
			must(conn.PublishRequest(*stream, string(reply), data))
			sent++
		}
	}
	await(sent)
	took := time.Since(start).Seconds()
	report(map[string]any{"records": sent, "seconds": took, "records_per_s": float64(sent) / took,
		"mb_per_s": float64(sent) * float64(*size) / took / 1e6})
}

// synchronous publishes the next message once the one before is acked; and times as many pings of the server alone.
func synchronous() {
	conn, _ := connect()
	data := payload()
	took := func(what func()) []int64 {
		var micros []int64
		for began := time.Now(); time.Since(began).Seconds() < *seconds; {
			start := time.Now()
			what()
			micros = append(micros, max(1, time.Since(start).Microseconds()))
		}
		return micros
	}
	ask := func() {
		answer, err := conn.Request(*stream, data, answerAtMost)
		must(err)
		answered(answer)
	}
	for range 100 { // what a first message alone takes
		ask()
	}
	report(map[string]any{"latencies_us": took(ask), "pings_us": took(func() { must(conn.Flush()) })})
}
