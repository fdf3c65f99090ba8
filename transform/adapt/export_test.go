package adapt

// Remember bounds the names that a list in another order remembers, with an index of so many
// bytes.
func (a *Adapter) Remember(names, bytes int) { a.most = bounds{names, bytes} }

// Remembered is how many bytes the indexes of the Adapter have, and those of others, as a test says.
func (a *Adapter) Remembered(others int64) int64 { return a.remembered.Add(others) }
