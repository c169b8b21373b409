// Publishes on NATS as services written in Go do, with the client's JetStream calls, and prints what it is told.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

const wait = 30 * time.Second

func main() {
	connection, err := nats.Connect(os.Args[1])
	check(err)
	stream, err := connection.JetStream(nats.PublishAsyncMaxPending(256))
	check(err)
	subject := os.Args[2]
	tell(stream.Publish(subject, []byte("a"), nats.MsgId("one")))
	tell(stream.Publish(subject, []byte("a"), nats.MsgId("one")))
	tell(stream.Publish(subject, []byte("b"), nats.ExpectLastSequence(77)))
	tell(stream.Publish(subject, []byte("b"), nats.ExpectStream("other")))
	for number := 0; number < 2000; number++ {
		_, err := stream.PublishAsync(subject, []byte(fmt.Sprint(number)))
		check(err)
	}
	select {
	case <-stream.PublishAsyncComplete():
	case <-time.After(wait):
		panic("not everything was acked")
	}
	tell(stream.Publish(subject, []byte("end")))
}

func tell(ack *nats.PubAck, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ack.Stream, ack.Sequence, ack.Duplicate)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
