// Tests of the pages that fencelock writes, in a real browser, outside the module graph of its users.
module github.com/fencelock/fencelock/tools/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260623181947-01eb4420fa68 // indirect
