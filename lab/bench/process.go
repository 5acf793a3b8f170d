package main

import "sync"

// process is what one process has open to the server. Contestants share it.
type process struct {
	addr string

	mu    sync.Mutex // guards all below
	open  map[string]any
	shuts []func()
}

// shared returns what p has open under key, and opens it when it is not there.
func shared[T any](p *process, key string, open func() (T, func(), error)) (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.open[key]; ok {
		return have.(T), nil
	}
	made, shut, err := open()
	if err != nil {
		return made, err
	}
	if p.open == nil {
		p.open = map[string]any{}
	}
	p.open[key], p.shuts = made, append(p.shuts, shut)
	return made, nil
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, shut := range p.shuts {
		shut()
	}
	p.open, p.shuts = nil, nil
}
