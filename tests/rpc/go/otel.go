//go:build otel

package main

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
)

// nowhere takes spans and forgets them.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }

func (nowhere) Shutdown(context.Context) error { return nil }

func init() {
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithBatcher(nowhere{})))
}

func peerServer() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler())}
}

func peerClient() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler())}
}
