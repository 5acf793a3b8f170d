package main

import (
	"fmt"
	"runtime"
	"testing"
)

// A bed is the servers and clients of one scenario. The test kit takes it for a test: Cleanup
// registers what ends with the scenario, and Fatal ends it.
type bed struct {
	testing.TB // nil; the test kit calls the methods below only
	cleanups   []func()
	failure    error
}

// inBed runs fn on a bed of its own and returns the error that ended it, if any.
func inBed(fn func(*bed)) error {
	b := &bed{}
	done := make(chan struct{})
	go func() { // ends with fn, or with the Fatal that ends fn
		defer close(done)
		defer b.clean()
		fn(b)
	}()
	<-done
	return b.failure
}

func (b *bed) clean() {
	for len(b.cleanups) > 0 {
		last := b.cleanups[len(b.cleanups)-1]
		b.cleanups = b.cleanups[:len(b.cleanups)-1]
		last()
	}
}

func (b *bed) Helper()                    {}
func (b *bed) Name() string               { return "peers" }
func (b *bed) Failed() bool               { return b.failure != nil }
func (b *bed) Cleanup(fn func())          { b.cleanups = append(b.cleanups, fn) }
func (b *bed) Log(args ...any)            { fmt.Println(args...) }
func (b *bed) Logf(f string, args ...any) { fmt.Printf(f+"\n", args...) }

func (b *bed) Error(args ...any)            { b.fail(fmt.Sprintln(args...)) }
func (b *bed) Errorf(f string, args ...any) { b.fail(fmt.Sprintf(f, args...)) }

func (b *bed) Fatal(args ...any) {
	b.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

func (b *bed) Fatalf(f string, args ...any) {
	b.fail(fmt.Sprintf(f, args...))
	runtime.Goexit()
}

func (b *bed) fail(text string) {
	if b.failure == nil {
		b.failure = fmt.Errorf("%s", text)
	}
}

// must ends the scenario if err is not nil.
func (b *bed) must(err error) {
	if err != nil {
		b.Fatal(err)
	}
}
