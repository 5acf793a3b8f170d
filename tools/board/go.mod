// Tests of the rules and the board in contrib on a real Prometheus, outside the module graph of
// users.
module github.com/fencelock/fencelock/tools/board

go 1.26.0

require github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000

require github.com/grafana/grafana-foundation-sdk/go v0.0.22

replace github.com/fencelock/fencelock => ../..
