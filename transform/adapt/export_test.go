package adapt

// Remember bounds the names that a list in another order remembers.
func (a *Adapter) Remember(names int) { a.most = names }
