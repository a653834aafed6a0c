// The matrix in Go: `matrix server`, which prints its port, and `matrix client PORT`, which asks its parent by
// `cut` and `kill` to do what only that can.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "example.com/matrix/pb"
)

type server struct{ pb.UnimplementedMatrixServer }

func end(tag string) string { return strings.Split(tag, "/")[1] }

func goesOn(tag string) bool {
	switch end(tag) {
	case "ok", "idle", "forgotten":
		return true
	}
	return false
}

func act(ctx context.Context, tag string) (*pb.Answer, error) {
	switch end(tag) {
	case "error":
		return nil, status.Error(codes.InvalidArgument, "no")
	case "abort":
		return nil, status.Error(codes.Aborted, "enough")
	case "cancel", "deadline", "cut", "killed":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.Answer{Number: 42}, nil
}

// next is the next server of a chain.
var next pb.MatrixClient

func (server) Unary(ctx context.Context, ask *pb.Ask) (*pb.Answer, error) {
	// Of a chain: as many calls of the next server as the first digit says, each with the other digits.
	if next != nil && ask.Secret != "" {
		for range int(ask.Secret[0] - '0') {
			if _, err := next.Unary(ctx, &pb.Ask{Tag: ask.Tag, Secret: ask.Secret[1:]}); err != nil {
				return nil, err
			}
		}
	}
	return act(ctx, ask.Tag)
}

func dial(port string) pb.MatrixClient {
	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	return pb.NewMatrixClient(conn)
}

// chain makes calls of the first server of a chain and prints what each is to make there.
func chain(port string, roots int) {
	stub := dial(port)
	var all sync.WaitGroup
	work := make(chan int)
	var lock sync.Mutex
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for root := range work {
				plan := ""
				for range 4 {
					plan += string("01122"[rand.IntN(5)])
				}
				tag := fmt.Sprintf("chain/ok/%d", root)
				_, err := stub.Unary(context.Background(), &pb.Ask{Tag: tag, Secret: plan})
				must(err)
				lock.Lock()
				fmt.Println(tag, plan)
				lock.Unlock()
			}
		}()
	}
	for root := range roots {
		work <- root
	}
	close(work)
	all.Wait()
}

func (server) ServerStream(ask *pb.Ask, stream grpc.ServerStreamingServer[pb.Answer]) error {
	for number := range uint64(3) {
		if err := stream.Send(&pb.Answer{Number: number + 1}); err != nil {
			return err
		}
	}
	_, err := act(stream.Context(), ask.Tag)
	return err
}

func (server) ClientStream(stream grpc.ClientStreamingServer[pb.Ask, pb.Answer]) error {
	tag := ""
	for {
		ask, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		tag = ask.Tag
		if !goesOn(tag) {
			break
		}
	}
	answer, err := act(stream.Context(), tag)
	if err != nil {
		return err
	}
	return stream.SendAndClose(answer)
}

func (server) Bidi(stream grpc.BidiStreamingServer[pb.Ask, pb.Answer]) error {
	tag := ""
	for {
		ask, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		tag = ask.Tag
		if err := stream.Send(&pb.Answer{Number: 1}); err != nil {
			return err
		}
		if !goesOn(tag) {
			break
		}
	}
	_, err := act(stream.Context(), tag)
	return err
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	if port := os.Getenv("FETTLE_NEXT"); port != "" {
		next = dial(port)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	s := grpc.NewServer()
	pb.RegisterMatrixServer(s, server{})
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		s.Stop()
	}()
	must(s.Serve(listener))
}

var input = bufio.NewReader(os.Stdin)

func askParent(what string) {
	fmt.Println(what)
	_, _ = input.ReadString('\n')
}

// start begins a call and gives what waits for its end.
func start(ctx context.Context, stub pb.MatrixClient, kind, tag string) (wait func()) {
	ask := &pb.Ask{Tag: tag, Body: []byte("12345"), Secret: "s"}
	switch kind {
	case "unary":
		done := make(chan struct{})
		go func() {
			_, _ = stub.Unary(ctx, ask)
			close(done)
		}()
		return func() { <-done }
	case "server":
		stream, err := stub.ServerStream(ctx, ask)
		if err != nil {
			return func() {}
		}
		return func() {
			for err == nil {
				_, err = stream.Recv()
			}
		}
	case "client":
		stream, err := stub.ClientStream(ctx)
		if err != nil {
			return func() {}
		}
		_ = stream.Send(ask)
		_ = stream.Send(ask)
		return func() {
			if goesOn(tag) || end(tag) == "error" || end(tag) == "abort" {
				_, _ = stream.CloseAndRecv()
			} else {
				_ = stream.RecvMsg(new(pb.Answer))
			}
		}
	}
	stream, err := stub.Bidi(ctx)
	if err != nil {
		return func() {}
	}
	_ = stream.Send(ask)
	_ = stream.Send(ask)
	return func() {
		if goesOn(tag) {
			_ = stream.CloseSend()
		}
		for err == nil {
			_, err = stream.Recv()
		}
	}
}

// cpu is the CPU time that this process has taken.
func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// bench prints the CPU time of a call, client and server in this process.
func bench(calls int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s := grpc.NewServer(peerServer()...)
	pb.RegisterMatrixServer(s, server{})
	go func() { _ = s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), append(peerClient(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	must(err)
	stub := pb.NewMatrixClient(conn)
	ask := &pb.Ask{Tag: "unary/ok", Body: []byte("12345")}
	run := func(calls int) {
		for range calls {
			_, err := stub.Unary(context.Background(), ask)
			must(err)
		}
	}
	run(calls / 4)
	begin := cpu()
	run(calls)
	fmt.Println((cpu() - begin).Nanoseconds() / int64(calls))
}

func main() {
	switch os.Args[1] {
	case "server":
		serve()
		return
	case "chain":
		roots, err := strconv.Atoi(os.Args[3])
		must(err)
		chain(os.Args[2], roots)
		return
	case "bench":
		calls, err := strconv.Atoi(os.Args[2])
		must(err)
		bench(calls)
		return
	}
	conn, err := grpc.NewClient("127.0.0.1:"+os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	must(err)
	stub := pb.NewMatrixClient(conn)
	for _, what := range []string{"ok", "error", "cancel", "deadline", "abort", "cut", "idle", "forgotten", "killed"} {
		var running []func()
		for _, kind := range []string{"unary", "server", "client", "bidi"} {
			tag := kind + "/" + what
			ctx, cancel := context.WithCancel(context.Background())
			switch what {
			case "deadline":
				ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
				start(ctx, stub, kind, tag)()
				cancel()
			case "cancel":
				wait := start(ctx, stub, kind, tag)
				time.Sleep(100 * time.Millisecond)
				cancel()
				wait()
			case "ok", "error", "abort":
				start(ctx, stub, kind, tag)()
			case "idle":
				// Kept and never looked at, until the connection is closed.
				running = append(running, start(ctx, stub, kind, tag))
			case "forgotten":
				// As gRPC wants it, its context is cancelled.
				start(ctx, stub, kind, tag)
				time.Sleep(100 * time.Millisecond)
				cancel()
				runtime.GC()
			default:
				running = append(running, start(ctx, stub, kind, tag))
			}
			_ = cancel
		}
		if what == "cut" || what == "killed" {
			time.Sleep(200 * time.Millisecond)
			askParent(map[string]string{"cut": "cut", "killed": "kill"}[what])
			for _, wait := range running {
				wait()
			}
			if what == "cut" {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				_, err = stub.Unary(ctx, &pb.Ask{Tag: "unary/again"}, grpc.WaitForReady(true))
				must(err)
				cancel()
			}
		}
		runtime.KeepAlive(running)
	}
	time.Sleep(200 * time.Millisecond)
	_ = conn.Close()
	time.Sleep(200 * time.Millisecond)
	fmt.Println("done")
}
