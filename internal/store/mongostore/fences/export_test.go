package fences

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Only tests of this package use these names.

const BlockOff = blockOff

const BlockOn = blockOn

func (n *Fences) LiftLateBlock(p0 context.Context) error { return n.liftLateBlock(p0) }

func (n *Fences) SetWriteBlock(p0 context.Context, p1 bool) error { return n.setWriteBlock(p0, p1) }

func (n *Fences) WriteBlockMode(p0 context.Context) (int64, error) { return n.writeBlockMode(p0) }

func (n *indexBuilds) Building(p0 context.Context, p1 string) (map[string][]string, error) {
	return n.building(p0, p1)
}

const AtOnce = atOnce

func (n *Fences) CloseFence(p0 context.Context, p1 string, p2 string) error {
	return n.closeFence(p0, p1, p2)
}

func (n *Fences) CreateOp(p0 string) bson.D { return n.createOp(p0) }

func (n *Fences) ExistsOp(p0 string, p1 any, p2 bson.D) bson.D { return n.existsOp(p0, p1, p2) }

func (n *Fences) OpenGate(p0 context.Context, p1 record.Fence) error { return n.openGate(p0, p1) }

const ReadyAtOnce = readyAtOnce

func (n *Fences) ThroughGate(p0 context.Context, p1 record.Fence) (struct{}, error) {
	return n.throughGate(p0, p1)
}

func (n *validators) SetUnlessEnded(p0 context.Context, p1 record.Fence, p2 func(context.Context) error, p3 func(context.Context) error, p4 func(context.Context) error) error {
	return n.setUnlessEnded(p0, p1, p2, p3, p4)
}

func (n *validators) StandAgain(p0 context.Context, p1 record.Token, p2 string, p3 string) error {
	return n.standAgain(p0, p1, p2, p3)
}

func (n *Fences) ApplyOps(p0 context.Context, p1 bson.A) error { return n.applyOps(p0, p1) }

var OnlyLooked = onlyLooked

var Partly = partly

type Identified = identified

func (n *Fences) ProveEach(p0 context.Context, p1 []identified) map[string]error {
	return n.proveEach(p0, p1)
}

func (n *Fences) ProveNames(p0 context.Context, p1 []identified) (map[string]error, error) {
	return n.proveNames(p0, p1)
}

func (n *Fences) ProveTogether(p0 context.Context, p1 []identified) (map[string]error, error) {
	return n.proveTogether(p0, p1)
}

func (n *Fences) MoveDocuments(p0 context.Context, p1 record.Token, p2 string, p3 bson.A) (int, int, error) {
	return n.moveDocuments(p0, p1, p2, p3)
}

func (n *Fences) OverStray(p0 context.Context, p1 record.Token, p2 string, p3 *conn.Collection) error {
	return n.overStray(p0, p1, p2, p3)
}

const StrayBatch = strayBatch

func (n *validators) LiftValidator(p0 context.Context, p1 record.Fence) error {
	return n.liftValidator(p0, p1)
}

func (n *validators) NoteUnfenced(p0 context.Context, p1 record.Token, p2 string) error {
	return n.noteUnfenced(p0, p1, p2)
}

var Refusing = refusing

func (n *validators) RestoreValidator(p0 context.Context, p1 record.Fence, p2 record.Token, p3 string) error {
	return n.restoreValidator(p0, p1, p2, p3)
}

func (n *Fences) MoveOps(p0 viewMove) bson.A { return n.moveOps(p0) }

func (n *Fences) RenameOp(p0 string, p1 string) bson.D { return n.renameOp(p0, p1) }

func (n *Fences) RenameOverView(p0 context.Context, p1 record.Fence) error {
	return n.renameOverView(p0, p1)
}

func (n *Fences) RepointOps(p0 string, p1 string, p2 string) bson.A { return n.repointOps(p0, p1, p2) }

func (n *Fences) Unview(p0 context.Context, p1 string, p2 string, p3 string) error {
	return n.unview(p0, p1, p2, p3)
}

func (n *Fences) UnviewOp(p0 string) bson.D { return n.unviewOp(p0) }

// ViewMove returns the move of a collection under a view.
func ViewMove(from, to, view, mark string) viewMove { return viewMove{from, to, view, mark} }

func (n *Fences) ViewOp(p0 string, p1 string, p2 string) bson.D { return n.viewOp(p0, p1, p2) }

const ByHash = byHash

const ByRange = byRange

const MaxKeyAdvice = maxKeyAdvice
