// Clients of HTTP that retry, outside the module graph of those who do not use them.
module github.com/fencelock/fencelock/bench/clients

go 1.26.0

replace github.com/fencelock/fencelock => ../..

require (
	github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000
	github.com/go-resty/resty/v2 v2.17.2
	github.com/hashicorp/go-retryablehttp v0.7.8
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
