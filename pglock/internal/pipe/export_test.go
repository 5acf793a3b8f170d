package pipe

// MaxCommon is maxCommon, for tests outside the package.
const MaxCommon = maxCommon

// LeaveReading makes the connection's own reader leave the reading to others for a moment.
func (w *Conn) LeaveReading() { w.used.Store(true) }
