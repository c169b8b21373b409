// Publishes on NATS what it is told on its standard input, with nats.go; see tests/clients/nats_drivers.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	wait   = 30 * time.Second
	window = 256 // the client waits 200 ms for room in it, unless it is told how long
)

type order struct {
	Subject string      `json:"subject"`
	Payload []byte      `json:"payload"` // base64
	Headers [][2]string `json:"headers"`
	Via     string      `json:"via"`
	ID      string      `json:"id"`
	Stream  string      `json:"stream"`
	LastSeq *uint64     `json:"last_seq"`
	LastID  string      `json:"last_id"`
}

type told struct {
	Stream    string `json:"stream,omitempty"`
	Sequence  uint64 `json:"seq,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Code      int    `json:"err_code,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

// publisher is one of the two ways that nats.go has to publish with an ack.
type publisher interface {
	publish(message *nats.Msg, one order) told
	begin(message *nats.Msg, one order) func() told
	info(stream string) told
}

func main() {
	var orders []order
	check(json.NewDecoder(os.Stdin).Decode(&orders))
	connection, err := nats.Connect(os.Args[1])
	check(err)
	var stream publisher
	if os.Args[2] == "legacy" {
		context, err := connection.JetStream(nats.PublishAsyncMaxPending(window))
		check(err)
		stream = legacy{context}
	} else {
		context, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(window))
		check(err)
		stream = current{context}
	}
	printer := json.NewEncoder(os.Stdout)
	var begun []func() told
	finish := func() {
		for _, result := range begun {
			check(printer.Encode(result()))
		}
		begun = nil
	}
	for _, one := range orders {
		message := nats.NewMsg(one.Subject)
		message.Data = one.Payload
		for _, header := range one.Headers {
			message.Header.Add(header[0], header[1])
		}
		if one.Via == "window" {
			begun = append(begun, stream.begin(message, one))
			continue
		}
		finish()
		switch one.Via {
		case "plain":
			check(printer.Encode(result(connection.PublishMsg(message))))
		case "info":
			check(printer.Encode(stream.info(one.Stream)))
		default:
			check(printer.Encode(stream.publish(message, one)))
		}
	}
	finish()
	check(connection.FlushTimeout(wait))
	connection.Close()
}

type legacy struct{ stream nats.JetStreamContext }

func (way legacy) options(one order) []nats.PubOpt {
	var options []nats.PubOpt
	if one.ID != "" {
		options = append(options, nats.MsgId(one.ID))
	}
	if one.Stream != "" {
		options = append(options, nats.ExpectStream(one.Stream))
	}
	if one.LastSeq != nil {
		options = append(options, nats.ExpectLastSequence(*one.LastSeq))
	}
	if one.LastID != "" {
		options = append(options, nats.ExpectLastMsgId(one.LastID))
	}
	return options
}

func (way legacy) publish(message *nats.Msg, one order) told {
	ack, err := way.stream.PublishMsg(message, append(way.options(one), nats.AckWait(wait))...)
	if err != nil {
		return result(err)
	}
	return told{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
}

func (way legacy) begin(message *nats.Msg, one order) func() told {
	future, err := way.stream.PublishMsgAsync(message, append(way.options(one), nats.StallWait(wait))...)
	return func() told {
		if err != nil {
			return result(err)
		}
		select {
		case ack := <-future.Ok():
			return told{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
		case err := <-future.Err():
			return result(err)
		case <-time.After(wait):
			return told{Failed: "no ack"}
		}
	}
}

func (way legacy) info(stream string) told {
	_, err := way.stream.StreamInfo(stream)
	return result(err)
}

type current struct{ stream jetstream.JetStream }

func (way current) options(one order) []jetstream.PublishOpt {
	var options []jetstream.PublishOpt
	if one.ID != "" {
		options = append(options, jetstream.WithMsgID(one.ID))
	}
	if one.Stream != "" {
		options = append(options, jetstream.WithExpectStream(one.Stream))
	}
	if one.LastSeq != nil {
		options = append(options, jetstream.WithExpectLastSequence(*one.LastSeq))
	}
	if one.LastID != "" {
		options = append(options, jetstream.WithExpectLastMsgID(one.LastID))
	}
	return options
}

func (way current) publish(message *nats.Msg, one order) told {
	limited, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	ack, err := way.stream.PublishMsg(limited, message, way.options(one)...)
	if err != nil {
		return result(err)
	}
	return told{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
}

func (way current) begin(message *nats.Msg, one order) func() told {
	future, err := way.stream.PublishMsgAsync(message, append(way.options(one), jetstream.WithStallWait(wait))...)
	return func() told {
		if err != nil {
			return result(err)
		}
		select {
		case ack := <-future.Ok():
			return told{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
		case err := <-future.Err():
			return result(err)
		case <-time.After(wait):
			return told{Failed: "no ack"}
		}
	}
}

func (way current) info(stream string) told {
	limited, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_, err := way.stream.Stream(limited, stream)
	return result(err)
}

func result(err error) told {
	if err == nil {
		return told{}
	}
	var older *nats.APIError
	if errors.As(err, &older) && older.ErrorCode != 0 {
		return told{Code: int(older.ErrorCode), Failed: older.Description}
	}
	var newer *jetstream.APIError
	if errors.As(err, &newer) && newer.ErrorCode != 0 {
		return told{Code: int(newer.ErrorCode), Failed: newer.Description}
	}
	return told{Failed: err.Error()}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
