package natsrecords

// Marks exports marks to the tests.
type Marks = marks

// Pass calls pass.
func (m *marks) Pass(key string, sequence uint64, anyway bool) bool {
	return m.pass(key, sequence, anyway)
}
