package filelock

import "os"

// hang creates the FIFO of a waiter that is about to join. Other processes wake the waiter by
// writing a byte to it. The waiter opens both ends, so that writers do not block and a byte written
// before the waiter reads is not lost. It returns nil if there can be no FIFO; the waiter then
// polls.
func (b *bells) hang(d *folder, owner string) *os.File {
	if b.deaf {
		return nil
	}
	f, _ := d.fifo(bellOf(owner))
	return f
}

// unhang removes a FIFO, which may be nil.
func unhang(d *folder, owner string, fifo *os.File) {
	if fifo != nil {
		_ = d.remove(bellOf(owner))
		fifo.Close()
	}
}

// listen forwards the bytes of a FIFO to a channel until the FIFO is closed. Several bytes may be
// forwarded as one signal.
func listen(fifo *os.File, bell chan<- struct{}) {
	buf := make([]byte, 64)
	for {
		if _, err := fifo.Read(buf); err != nil {
			return
		}
		ringOwn(bell)
	}
}
