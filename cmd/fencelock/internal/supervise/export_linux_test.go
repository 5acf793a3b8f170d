package supervise

// Unchanged returns the parts of a list of mappings that could be given back, as starts
// and sizes.
func Unchanged(smaps []byte) (parts [][2]uintptr) {
	for _, m := range unchanged(smaps) {
		parts = append(parts, [2]uintptr{m.start, m.size})
	}
	return parts
}
