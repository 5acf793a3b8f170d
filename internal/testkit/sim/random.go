package sim

// random is a splitmix64 generator. It returns the same numbers on all platforms.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n); 0 if n is not positive.
func (r *random) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return int64((r.next() >> 1) % uint64(n))
}

// within returns a number in [-n, n].
func (r *random) within(n int64) int64 { return r.below(2*n+1) - n }

// chance returns true with a probability of perMille / 1000.
func (r *random) chance(perMille int64) bool { return perMille > 0 && r.below(1000) < perMille }

// fraction returns a number in [0, 1).
func (r *random) fraction() float64 { return float64(r.next()>>11) / (1 << 53) }
