// A Go service that asks workers through a NATS server, each program by one connection of its own.
//
//	nats serve PORT BROKER ASKED LOG    each request asks two questions at once and then a third one
//	nats work PORT BROKER ASKED LOG     a worker: it asks an HTTP server for each question, then answers
//
// LOG gets which request each question on a connection is of, in the order in which they are written there.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	log     *os.File
	logging sync.Mutex
	client  = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	number  = regexp.MustCompile(`number (\d+);`)
)

func port(address net.Addr) string {
	_, port, _ := net.SplitHostPort(address.String())
	return port
}

func note(number, asking, answering string) {
	logging.Lock()
	defer logging.Unlock()
	fmt.Fprintf(log, "%s %s:%s\n", number, asking, answering)
}

// A connection to the broker that writes down whose messages go over it.
type noted struct {
	net.Conn
	asks bool
	line []byte
}

// One message is one write or a part of one: the client's buffer is written when it is flushed. What is cut is read on.
func (c *noted) see(data []byte) {
	c.line = append(c.line, data...)
	for {
		found := number.FindSubmatchIndex(c.line)
		if found == nil {
			break
		}
		asking, answering := port(c.LocalAddr()), port(c.RemoteAddr())
		if !c.asks {
			asking, answering = answering, asking
		}
		note(string(c.line[found[2]:found[3]]), asking, answering)
		c.line = c.line[found[1]:]
	}
	if at := bytes.LastIndexByte(c.line, '\n'); at >= 0 {
		c.line = c.line[at+1:]
	}
}

func (c *noted) Write(data []byte) (int, error) {
	if c.asks {
		c.see(data)
	}
	return c.Conn.Write(data)
}

func (c *noted) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if !c.asks {
		c.see(data[:n])
	}
	return n, err
}

type dialer struct{ asks bool }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &noted{Conn: conn, asks: d.asks}, nil
}

func connect(broker string, asks bool) *nats.Conn {
	for {
		conn, err := nats.Connect("nats://127.0.0.1:"+broker, nats.SetCustomDialer(dialer{asks}))
		if err == nil {
			return conn
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func ask(number, asked string) int {
	request, _ := http.NewRequest("GET", "http://127.0.0.1:"+asked+"/part", nil)
	got := func(info httptrace.GotConnInfo) { note(number, port(info.Conn.LocalAddr()), asked) }
	trace := &httptrace.ClientTrace{GotConn: got}
	response, err := client.Do(request.WithContext(httptrace.WithClientTrace(context.Background(), trace)))
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return len(body)
}

func serve(own string, broker *nats.Conn) {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		number := r.Header.Get("X-Number")
		_, peer, _ := net.SplitHostPort(r.RemoteAddr)
		note(number, peer, own)
		question := func() int {
			answer, err := broker.Request("work", []byte("number "+number+";"), 5*time.Second)
			if err != nil {
				return 0
			}
			return len(answer.Data)
		}
		var both sync.WaitGroup
		sizes := make([]int, 2)
		for n := range sizes {
			both.Add(1)
			go func() {
				defer both.Done()
				sizes[n] = question()
			}()
		}
		both.Wait()
		fmt.Fprintf(w, "%s %d\n", number, sizes[0]+sizes[1]+question())
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+own, nil))
}

func main() {
	mode, own, broker, asked := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	log, _ = os.OpenFile(os.Args[5], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if mode == "serve" {
		serve(own, connect(broker, true))
		return
	}
	answers := connect(broker, false)
	answers.QueueSubscribe("work", "workers", func(m *nats.Msg) {
		size := ask(string(number.FindSubmatch(m.Data)[1]), asked)
		m.Respond([]byte(fmt.Sprint(size)))
	})
	select {}
}
