package otelfencelock_test

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// encoder writes attributes as words.
type encoder struct{}

var encoderID = attribute.NewEncoderID()

func (encoder) ID() attribute.EncoderID { return encoderID }

func (encoder) Encode(attrs attribute.Iterator) string {
	var words []string
	for attrs.Next() {
		a := attrs.Attribute()
		words = append(words, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(words, " ")
}
