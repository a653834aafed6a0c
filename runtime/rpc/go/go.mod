module fettle.dev/rpc

go 1.22

require (
	fettle.dev/sensor v0.0.0
	google.golang.org/grpc v1.64.0
	google.golang.org/protobuf v1.34.1
)

replace fettle.dev/sensor => ../../sensor/go
