package adapt

// Remember bounds the names that a list in another order remembers, with an index of so many
// bytes.
func (a *Adapter) Remember(names, bytes int) {
	a.most = bounds{names, bytes}
	for _, x := range a.indexes {
		x.total.Add(int64(min(x.own, x.bytes)))
		x.own = 0
	}
}

// Share gives each index its own memory, which Remember takes.
func (a *Adapter) Share() { a.share() }

// Filled reports whether the index of a kind is in memory.
func (a *Adapter) Filled(kind string) bool {
	x := a.indexes[kind]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ready
}

// Remembered is how many bytes the indexes of the Adapter have beyond their own, and those of others,
// as a test says.
func (a *Adapter) Remembered(others int64) int64 { return a.remembered.Add(others) }
