module github.com/fencelock/fencelock/bench/suites/rueidislock

go 1.26.0

replace github.com/fencelock/fencelock => ../../..

require (
	github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
