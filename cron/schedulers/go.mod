// Adapters for other schedulers, outside the module graph of those who do not use them.
module github.com/fencelock/fencelock/cron/schedulers

go 1.26.0

require (
	github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/go-cmp v0.7.0
	github.com/google/uuid v1.6.0
	github.com/jonboulle/clockwork v0.5.0
	github.com/robfig/cron/v3 v3.0.1
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/fencelock/fencelock => ../..
