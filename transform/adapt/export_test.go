package adapt

// Remember bounds the names that a list in another order remembers, with an index of so many
// bytes.
func (a *Adapter) Remember(names, bytes int) { a.most = bounds{names, bytes} }
