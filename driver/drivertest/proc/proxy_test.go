package proc_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

// lines is a server that says back what it is told, and who hung up.
func lines(t *testing.T) (addr string, heard chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	heard = make(chan string, 10)
	go func() { // ends when ln is closed
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					heard <- in.Text()
					fmt.Fprintln(c, "said", in.Text())
				}
				heard <- "hung up"
			}()
		}
	}()
	return ln.Addr().String(), heard
}

// expect fails the test unless want comes, whenever that is.
func expect(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%q was not heard", want)
	}
}

// A proxy that is cut keeps what is sent, and the ends of connections, until it is mended.
func TestProxy(t *testing.T) {
	t.Parallel()
	addr, heard := lines(t)
	p := proc.NewProxy(t, addr)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	fmt.Fprintln(first, "one")
	expect(t, heard, "one")
	if line, err := bufio.NewReader(first).ReadString('\n'); line != "said one\n" {
		t.Errorf("the answer is %q, %v", line, err)
	}
	for range 2 { // a second Cut, or Mend, changes nothing
		p.Cut(t)
	}
	fmt.Fprintln(first, "two")
	_ = first.Close()
	second := dial()
	fmt.Fprintln(second, "three")
	select {
	case got := <-heard:
		t.Errorf("heard %q through a cut", got)
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 {
		p.Mend(t)
	}
	got := map[string]bool{<-heard: true, <-heard: true, <-heard: true}
	if !got["two"] || !got["hung up"] || !got["three"] {
		t.Errorf("after the cut %v was heard", got)
	}
	if line, err := bufio.NewReader(second).ReadString('\n'); line != "said three\n" {
		t.Errorf("the answer is %q, %v", line, err)
	}
}
