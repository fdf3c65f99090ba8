package preflight

import (
	"context"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// untried reports what a read-only plan does not know.
func (p *plan) untried() {
	p.warn("plan", "", "made without a controller, so it only reads: privileges, fences, indexes, the rollback and the pause were not tried, "+
		"and the servers that take part are unknown: 'dbcontroller plan' at a controller checks these")
}

// transformed transforms groups as a copy would, counts the results, and discards them. It returns
// the error of each group that failed.
func (p *plan) transformed(ctx context.Context, held *frozen, src record.Tokens, ids []transform.GroupID) (map[transform.GroupID]error, error) {
	failed := map[transform.GroupID]error{}
	dst := record.Tokens{}
	// No real collections exist; the tokens only name the kinds.
	for _, k := range p.dir.TargetKinds() {
		dst[k.Name] = record.Token{Kind: k.Name, Name: k.Name}
	}
	t := transform.Transfer{
		Resolver: transform.Resolver{
			Direction: p.dir, Source: held, Target: &frozen{}, Epoch: p.record.Epoch, Apart: map[transform.GroupID]bool{},
			From: transform.View{Tokens: src}.Within(transform.ReadBytes), To: transform.View{Tokens: dst}.Within(transform.ReadBytes),
		},
		Write: func(_ context.Context, b record.Batch) ([]record.Result, error) {
			results := make([]record.Result, len(b.Groups))
			for i, g := range b.Groups {
				results[i].Outcome = record.Applied
				for _, w := range g.Writes {
					p.made(w.Kind, len(w.Doc))
				}
			}
			return results, nil
		},
		Fail: func(_ context.Context, f transform.Failure, _ record.Version) error {
			failed[f.Unit] = f.Err
			return nil
		},
	}
	_, err := transform.Until(ids, func(ids []transform.GroupID) ([]transform.GroupID, error) { return t.Once(ctx, ids) })
	return failed, err
}
