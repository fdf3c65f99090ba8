package rehearsal

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

// reading lists the methods that a rehearsal may use on the real database. readOnly must refuse
// each other method of a namespace explicitly, or it does not compile.
type reading interface {
	record.Reader
	record.Watcher
	record.Connector
	record.Monitor
	Check(ctx context.Context) error
	Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error)
	Size(ctx context.Context, tok record.Token) (record.Size, error)
	Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error)
	FreeNumber(ctx context.Context, kind string) (uint64, error)
	Locate(ctx context.Context, id string) (string, error)
	Identity(ctx context.Context) (record.Identity, error)
	Marks(ctx context.Context) ([]record.Mark, error)
	Claims(ctx context.Context) ([]record.Claim, error)
}

// ReadOnly returns a namespace that refuses every change. It panics if ns lacks a reading method,
// such as record.Monitor.
func ReadOnly(ns record.Namespace) record.Namespace { return readOnly{ns.(reading)} }

// readOnly is a database that a rehearsal reads and never changes.
type readOnly struct{ reading }

var (
	_           record.Namespace = readOnly{}
	errReadOnly                  = errors.New("a rehearsal does not change this database")
)

func (readOnly) Apply(context.Context, record.Batch) ([]record.Result, error) {
	return nil, errReadOnly
}
func (readOnly) Nudge(context.Context) error                                 { return errReadOnly }
func (readOnly) Load(context.Context, record.Batch) ([]record.Result, error) { return nil, errReadOnly }
func (readOnly) Swap(context.Context, record.Token, []record.Swap) ([]record.Result, error) {
	return nil, errReadOnly
}
func (readOnly) Ready(context.Context, []record.Fence) error   { return errReadOnly }
func (readOnly) Unready(context.Context, []record.Fence) error { return errReadOnly }
func (readOnly) Fence(context.Context, record.Fence) error     { return errReadOnly }
func (readOnly) Unfence(context.Context, record.Fence) error   { return errReadOnly }
func (readOnly) Prevent(context.Context, record.Fence) (bool, error) {
	return false, errReadOnly
}
func (readOnly) Uphold(context.Context, record.Fence, []string) ([]record.Breach, error) {
	return nil, errReadOnly
}
func (readOnly) Hindrances(context.Context, []record.Token) ([]record.Hindrance, error) {
	return nil, errReadOnly
}
func (readOnly) Prepare(context.Context, record.Token, record.FenceClass) (record.FenceClass, string, error) {
	return "", "", errReadOnly
}
func (readOnly) Provision(context.Context, record.KindSpec, string) (record.Token, error) {
	return record.Token{}, errReadOnly
}
func (readOnly) Purge(context.Context, record.Token) error { return errReadOnly }
func (readOnly) Drop(context.Context, record.Token) error  { return errReadOnly }
func (readOnly) Forget(context.Context, record.Token) error {
	return errReadOnly
}
func (readOnly) BuildIndexes(context.Context, record.Token, record.KindSpec) error {
	return errReadOnly
}
func (readOnly) Reshape(context.Context, record.Token, record.KindSpec, []string) error {
	return errReadOnly
}
func (readOnly) Require(context.Context, []record.Token, record.Label) error { return errReadOnly }
func (readOnly) Expire(context.Context, record.Token, map[string]int64) (map[string]int64, error) {
	return nil, errReadOnly
}
func (readOnly) Identify(context.Context) (record.Identity, error) {
	return record.Identity{}, errReadOnly
}
func (readOnly) PutMark(context.Context, record.Mark) error              { return errReadOnly }
func (readOnly) Claim(context.Context, record.Token, record.Owner) error { return errReadOnly }
func (readOnly) Release(context.Context, record.Owner) error             { return errReadOnly }
