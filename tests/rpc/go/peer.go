//go:build !otel

package main

import "google.golang.org/grpc"

func peerServer() []grpc.ServerOption { return nil }

func peerClient() []grpc.DialOption { return nil }
