//go:build unix

package cli

import (
	"bytes"
	"context"
	"io"
	"testing"
)

// gate is a writer whose Write blocks until opened is closed.
type gate struct {
	opened chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.Buffer.Write(p)
}

// TestOutputInOrder: a reader that starts to read when the command ends gets all output in order,
// and the beginning of the output is kept.
func TestOutputInOrder(t *testing.T) {
	const chunk, chunks, most = 32 << 10, 4, 100_000 // two in the pipe, one read, one being written
	for range 50 {
		out := &gate{opened: make(chan struct{})}
		a := &App{stdout: out, Stderr: io.Discard}
		o, err := newOutput(a, most)
		must(t, err)
		var want []byte
		for i := range chunks {
			part := bytes.Repeat([]byte{byte('a' + i)}, chunk)
			want = append(want, part...)
			_, err := o.writers()[0].Write(part)
			must(t, err)
		}
		go close(out.opened) // ends at once
		o.finish()
		must(t, a.deliver(context.Background(), o.readers()))
		if r := o.outcome(0); !bytes.Equal(out.Bytes(), want) || !bytes.Equal(r.stdout, want[:most]) || !r.StdoutCut || r.StderrCut {
			t.Fatalf("%d bytes were passed on, %d kept (cut: %v); want %d in order, and %d", out.Len(), len(r.stdout), r.StdoutCut, len(want), most)
		}
		o.close()
	}
}
