package faults

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// message is one of PostgreSQL's; kind 0 is one before the start.
func message(kind byte, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if kind != 0 {
		b = slices.Concat([]byte{kind}, b)
	}
	return string(b) + body
}

// packet is one of MySQL's.
func packet(number byte, body string) string {
	return string([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), number}) + body
}

// TestFramerForwardsTLS: a client of MySQL that begins TLS must not wait for its handshake.
func TestFramerForwardsTLS(t *testing.T) {
	t.Parallel()
	var f framer
	request, hello := packet(1, strings.Repeat("r", 32)), "\x16\x03\x01\x05\xdc"+strings.Repeat("h", 1500)
	if got := f.cut([]byte(request + hello)); len(got) != 2 || string(got[0]) != request || string(got[1]) != hello {
		t.Errorf("the requests are %q", got)
	}
	if got := f.cut([]byte("\x17\x03\x03\x00\x20short")); len(got) != 1 || len(f.rest) > 0 {
		t.Errorf("after the handshake: %q, rest %q", got, f.rest)
	}
}

// Every cut of the stream into two or three parts must give the same requests.
func TestFramer(t *testing.T) {
	t.Parallel()
	batch := message('P', "a\x00SELECT 1\x00") + message('B', "\x00a\x00") + message('E', "\x00") + message('S', "")
	for name, requests := range map[string][]string{
		"redis arrays": {"*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$7\r\nx\r\n*1\r\n\r\n", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n"},
		"redis lines":  {"PING\r\n", "SET a 1\r\n", "*1\r\n$4\r\nPING\r\n", "*0\r\n"},
		"postgres": {
			message(0, "\x04\xd2\x16\x2f"), message(0, "\x00\x03\x00\x00user\x00me\x00\x00"),
			message('p', "secret\x00"), message('Q', "SELECT 2\x00"), batch,
			message('P', "b\x00SELECT 3\x00") + message('H', ""), batch, message('X', ""),
		},
		"http": {
			"GET /bucket/key HTTP/1.1\r\nHost: h\r\n\r\n", "PUT /bucket/key HTTP/1.1\r\ncontent-length: 21\r\nHost: h\r\n\r\nGET /no/request\r\n\r\nHi",
			"PUT /bucket/empty HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "DELETE /bucket/key HTTP/1.1\r\n\r\n",
		},
		"http of Kubernetes": {
			"POST /leases HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "PATCH /leases/a HTTP/1.1\r\nContent-Length: 4\r\n\r\n{\r\n}",
			"GET /leases/a HTTP/1.1\r\n\r\n",
		},
		"mysql": {
			packet(1, "an answer to the greeting, of some length"), packet(0, "\x03SELECT 1\n"), packet(0, "\x0e"),
			packet(0, "\x03"+strings.Repeat("long", 100)), packet(0, "\x01"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stream string
			for _, r := range requests {
				stream += r
			}
			for i := range len(stream) {
				for j := i; j <= len(stream); j += 1 + len(stream)/40 {
					var f framer
					var got []string
					for _, part := range []string{stream[:i], stream[i:j], stream[j:]} {
						for _, r := range f.cut([]byte(part)) {
							got = append(got, string(r))
						}
					}
					if !slices.Equal(got, requests) || len(f.rest) > 0 {
						t.Fatalf("cut at %d and %d: %q, rest %q", i, j, got, f.rest)
					}
				}
			}
		})
	}
}

// What is in no protocol we know passes as it comes, at once.
func TestFramerLeavesTheRestAlone(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{
		"\x16\x03\x01 a handshake",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04 and frames, without the end of a line",
		message(0, "\x04\xd2\x16\x2f") + "\x16\xff\xff\xff\xff a handshake after a question",
		"*1\r\n!4\r\nPING\r\n",
		"*one\r\n",
		message(0, "\x00\x03\x00\x00") + message('Q', "") + "Q\x00\x00\x00\x01",
	} {
		var f framer
		var got string
		for _, r := range f.cut([]byte(stream)) {
			got += string(r)
		}
		if got != stream {
			t.Errorf("%q became %q", stream, got)
		}
	}
}

func FuzzFramer(f *testing.F) {
	f.Add("*1\r\n$4\r\nPING\r\n", 3)
	f.Add(message(0, "\x00\x03\x00\x00")+message('Q', "SELECT 1\x00"), 9)
	f.Fuzz(func(t *testing.T, stream string, at int) {
		at = max(0, min(at, len(stream)))
		var fr framer
		var got []byte
		for _, part := range []string{stream[:at], stream[at:]} {
			for _, r := range fr.cut([]byte(part)) {
				if len(r) == 0 {
					t.Fatal("an empty request")
				}
				got = append(got, r...)
			}
		}
		if string(got)+string(fr.rest) != stream {
			t.Errorf("%q became %q and %q", stream, got, fr.rest)
		}
	})
}
