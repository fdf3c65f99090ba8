package mongostore

// ListRounds returns the rounds that list collections by name.
func (n *Conn) ListRounds() *rounds[[]string, []collection] { return &n.names }

// IndexReads returns how many reads of indexes wait for their turn.
func (n *Conn) IndexReads() int {
	n.indexed.mu.Lock()
	defer n.indexed.mu.Unlock()
	return len(n.indexed.queue)
}

// LacksNotes reports whether the pulse does without notes.
func (n *Conn) LacksNotes() bool { return n.pulse.noNote }
