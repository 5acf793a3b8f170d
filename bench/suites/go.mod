module github.com/fencelock/fencelock/bench/suites

go 1.26.0

replace github.com/fencelock/fencelock => ../..

require github.com/fencelock/fencelock v0.0.0-00010101000000-000000000000
