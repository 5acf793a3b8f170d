// The interceptors for gRPC, outside the module graph of those who do not use them.
module github.com/fencelock/fencelock/fence/fencegrpc

go 1.26.0

require (
	github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261026165753-2ffab32bce7e
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/fencelock/fencelock => ../..
