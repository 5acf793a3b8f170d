package pglock

import (
	"encoding/binary"
	"math/bits"
)

// keyOf returns the 64-bit key of a name. The client computes it, so that requests for the same key
// meet in the process before they reach the server. Every new connection checks that the server
// computes the same key.
func keyOf(name string) int64 {
	if id := keyID(name); id != nil {
		return *id
	}
	return hashText(name)
}

// hashText is hashtextextended(s, 0) of a UTF-8 database on a little-endian
// machine: Bob Jenkins' lookup3.
func hashText(s string) int64 {
	k := []byte(s)
	a := 0x9e3779b9 + uint32(len(k)) + 3923095
	b, c := a, a
	for ; len(k) >= 12; k = k[12:] {
		a += binary.LittleEndian.Uint32(k)
		b += binary.LittleEndian.Uint32(k[4:])
		c += binary.LittleEndian.Uint32(k[8:])
		a, b, c = mix(a, b, c)
	}
	var tail [12]byte // the lowest byte of c belongs to the length
	copy(tail[:8], k)
	if len(k) > 8 {
		copy(tail[9:], k[8:])
	}
	a += binary.LittleEndian.Uint32(tail[:])
	b += binary.LittleEndian.Uint32(tail[4:])
	c += binary.LittleEndian.Uint32(tail[8:])
	b, c = final(a, b, c)
	return int64(uint64(b)<<32 | uint64(c))
}

// mix is mix() of lookup3: subtract, rotate and add, six times.
func mix(a, b, c uint32) (uint32, uint32, uint32) {
	for _, n := range [...][3]int{{4, 6, 8}, {16, 19, 4}} {
		a -= c
		a ^= bits.RotateLeft32(c, n[0])
		c += b
		b -= a
		b ^= bits.RotateLeft32(a, n[1])
		a += c
		c -= b
		c ^= bits.RotateLeft32(b, n[2])
		b += a
	}
	return a, b, c
}

// final is final() of lookup3.
func final(a, b, c uint32) (uint32, uint32) {
	for _, n := range [...]struct {
		x, y *uint32
		rot  int
	}{{&c, &b, 14}, {&a, &c, 11}, {&b, &a, 25}, {&c, &b, 16}, {&a, &c, 4}, {&b, &a, 14}, {&c, &b, 24}} {
		*n.x ^= *n.y
		*n.x -= bits.RotateLeft32(*n.y, n.rot)
	}
	return b, c
}
