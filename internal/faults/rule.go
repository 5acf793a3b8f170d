package faults

import (
	"bytes"
	"slices"
)

// A rule says what happens with a request that contains a text.
type rule struct {
	text []byte
	hook func()        // nil for a rule that swallows the reply
	done chan struct{} // of a rule that swallows: closed when it has cut
}

// maxText is the longest text of a rule: so much is remembered of what has
// passed, to find a text that arrives in two parts.
const maxText = 1 << 10

// OnRequest calls hook whenever bytes that contain text are about to reach the
// server, and holds them, and all behind them on their connection, until it
// returns: a hook that calls Drop or Reset keeps the request away. Requests that
// arrive at once count as one. Text is 1 KiB at most; what TLS has encrypted is
// not found. The hook may be called from several goroutines at once. It goes on
// until remove is called.
func (p *Proxy) OnRequest(text string, hook func()) (remove func()) {
	return p.add(&rule{text: []byte(text), hook: hook})
}

// SwallowReply lets the next request that contains text reach the server, but
// not its reply: from then on nothing comes back on that connection, replies
// that were already due included, and it is reset as soon as the server has
// answered all it was sent. Then cut is closed. It happens once.
func (p *Proxy) SwallowReply(text string) (cut <-chan struct{}) {
	r := &rule{text: []byte(text), done: make(chan struct{})}
	p.add(r)
	return r.done
}

func (p *Proxy) add(r *rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

// callHooks calls the hooks that wait for a piece, unless it is to be lost.
func (l *link) callHooks(data []byte) {
	for _, hook := range l.hooks(data) {
		hook()
	}
}

func (l *link) hooks(data []byte) (hooks []func()) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if (p.drop|l.lost)&ToServer != 0 {
		return nil
	}
	for _, r := range p.rules {
		if r.hook != nil && r.matches(l.tail, data) {
			hooks = append(hooks, r.hook)
		}
	}
	return hooks
}

// takeSwallow returns the first rule that swallows the reply to a piece, and
// forgets it. The caller holds mu.
func (p *Proxy) takeSwallow(tail, data []byte) *rule {
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.hook == nil && r.matches(tail, data) })
	if i < 0 {
		return nil
	}
	r := p.rules[i]
	p.rules = slices.Delete(p.rules, i, i+1)
	return r
}

// matches reports whether the text is in data, or ends in it after a beginning
// in the tail of what went before.
func (r *rule) matches(tail, data []byte) bool {
	if len(data) == 0 || bytes.Contains(data, r.text) {
		return len(data) > 0
	}
	before := tail[max(0, len(tail)-len(r.text)+1):]
	after := data[:min(len(data), len(r.text)-1)]
	return bytes.Contains(slices.Concat(before, after), r.text)
}

// newTail returns what to remember once data has passed.
func newTail(tail, data []byte) []byte {
	all := append(tail, data...)
	return bytes.Clone(all[max(0, len(all)-maxText):])
}
