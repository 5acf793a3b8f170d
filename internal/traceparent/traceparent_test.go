package traceparent_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/traceparent"
)

func TestValid(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, text := range []string{good, "00-" + strings.Repeat("f", 32) + "-" + strings.Repeat("0", 15) + "1-00"} {
		if !traceparent.Valid(text) {
			t.Errorf("%q was refused", text)
		}
	}
	for _, text := range []string{
		"", "-", "---", good[:54], good + "0", good + "-00", " " + good, good + "\n", strings.ToUpper(good),
		"01" + good[2:], "ff" + good[2:], strings.Replace(good, "0af", "0ag", 1), strings.Replace(good, "-b7", "_b7", 1),
		strings.Replace(good, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1),
		strings.Replace(good, "b7ad6b7169203331", strings.Repeat("0", 16), 1),
		strings.Replace(good, "9c-b7", "9-cb7", 1), strings.Replace(good, "0af", "ä0f", 1),
	} {
		if traceparent.Valid(text) {
			t.Errorf("%q was taken for a traceparent", text)
		}
	}
}
