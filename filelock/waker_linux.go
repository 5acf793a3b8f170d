package filelock

import "os"

// createFIFO creates the FIFO of a waiter that is about to join. Other processes wake the waiter by
// writing a byte to it. The waiter opens both ends, so that writers do not block and a byte written
// before the waiter reads is not lost. It returns nil if there can be no FIFO; the waiter then
// polls.
func (k *waker) createFIFO(d *folder, owner string) *os.File {
	if k.polls {
		return nil
	}
	f, _ := d.fifo(fifoOf(owner))
	return f
}

// removeFIFO removes a FIFO, which may be nil.
func removeFIFO(d *folder, owner string, fifo *os.File) {
	if fifo != nil {
		_ = d.remove(fifoOf(owner))
		fifo.Close()
	}
}

// forward forwards the bytes of a FIFO to a channel until the FIFO is closed. Several bytes may be
// forwarded as one signal.
func forward(fifo *os.File, wake chan<- struct{}) {
	buf := make([]byte, 64)
	for {
		if _, err := fifo.Read(buf); err != nil {
			return
		}
		signal(wake)
	}
}
