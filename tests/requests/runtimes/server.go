// A Go server whose requests ask two questions at once and then a third one, and the server that they ask.
//
//	server serve PORT ASKED LOG    answers, and writes down which request went over which connection
//	server answer PORT LOG         is asked: it waits for up to 3 ms and answers, and writes down the same for
//	                               questions with a number, where who asks does not know it in time
package main

import (
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"time"
)

var (
	log     *os.File
	logging sync.Mutex
	client  = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
)

// Writes down that a request's exchange goes over a connection, before anything is sent there.
func note(number, asking, answering string) {
	logging.Lock()
	defer logging.Unlock()
	fmt.Fprintf(log, "%s %s:%s\n", number, asking, answering)
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func ask(number, asked, what string) string {
	request, _ := http.NewRequest("GET", "http://127.0.0.1:"+asked+"/"+what, nil)
	got := func(info httptrace.GotConnInfo) { note(number, port(info.Conn.LocalAddr().String()), asked) }
	trace := &httptrace.ClientTrace{GotConn: got}
	response, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func main() {
	mode, own := os.Args[1], os.Args[2]
	log, _ = os.OpenFile(os.Args[len(os.Args)-1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if mode == "answer" {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			if number := r.Header.Get("X-Number"); number != "" {
				note(number, port(r.RemoteAddr), own)
			}
			time.Sleep(time.Duration(rand.Intn(3000)) * time.Microsecond)
			fmt.Fprintf(w, "answer to %s from %s", r.URL.Path, port(r.RemoteAddr))
		})
	} else {
		asked := os.Args[3]
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			number := r.Header.Get("X-Number")
			note(number, port(r.RemoteAddr), own)
			var both sync.WaitGroup
			answers := make([]string, 2)
			for n := range answers {
				both.Add(1)
				go func() {
					defer both.Done()
					answers[n] = ask(number, asked, fmt.Sprint("part/", n))
				}()
			}
			both.Wait()
			third := ask(number, asked, "third")
			fmt.Fprintf(w, "%s %d\n", number, len(answers[0])+len(answers[1])+len(third))
		})
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+own, nil))
}
