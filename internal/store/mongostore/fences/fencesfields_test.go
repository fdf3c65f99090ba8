package fences

import (
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// GateRounds returns the rounds that create gates.
func (n *Fences) GateRounds() *conn.Rounds[record.Fence, struct{}] { return &n.gates }

// PassRounds returns the rounds that pass gates.
func (n *Fences) PassRounds() *conn.Rounds[record.Fence, struct{}] { return &n.passes }
