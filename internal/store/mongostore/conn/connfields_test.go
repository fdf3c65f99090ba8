package conn

// ListRounds returns the rounds that list collections by name.
func (n *Conn) ListRounds() *Rounds[[]string, []Collection] { return &n.names }

// IndexReads returns how many reads of indexes wait for their turn.
func (n *Conn) IndexReads() int {
	n.Indexed.mu.Lock()
	defer n.Indexed.mu.Unlock()
	return len(n.Indexed.queue)
}

// LacksNotes reports whether the pulse does without notes.
func (n *Conn) LacksNotes() bool { return n.Pulse.noNote }
