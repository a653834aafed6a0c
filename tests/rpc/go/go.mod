module example.com/matrix

go 1.22

require (
	fettle.dev/rpc v0.0.0
	google.golang.org/grpc v1.64.0
	google.golang.org/protobuf v1.34.1
)

replace (
	fettle.dev/rpc => ../../../runtime/rpc/go
	fettle.dev/sensor => ../../../runtime/sensor/go
)
