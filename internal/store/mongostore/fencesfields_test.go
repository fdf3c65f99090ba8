package mongostore

import "dbcontroller.dev/record"

// GateRounds returns the rounds that create gates.
func (n *Fences) GateRounds() *rounds[record.Fence, struct{}] { return &n.gates }

// PassRounds returns the rounds that pass gates.
func (n *Fences) PassRounds() *rounds[record.Fence, struct{}] { return &n.passes }
