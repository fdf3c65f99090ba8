package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/config"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/transform/lens/lint"
)

// trialPrefix begins the names of the collections that records are tried in. What a command
// that was killed has left, the next one removes.
const trialPrefix = "dbc_lint_"

// trial is scratch collections in the new version's database, with the indexes and validators
// that its kinds will have.
type trial struct {
	ns   *mongostore.Namespace
	name map[string]string // of the collection that stands for a kind
	toks record.Tokens
}

// openTrial makes them. Options and indexes are those that an upgrade would carry over from the
// collections as they are now, or those that the configuration declares.
func openTrial(ctx context.Context, cfg config.Config, files []lint.File) (out *trial, err error) {
	older, newer := cfg.Kinds[0].Older, cfg.Kinds[0].Newer
	from, err := openQuietly(ctx, cfg, older)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close(context.WithoutCancel(ctx))) }()
	to, err := openQuietly(ctx, cfg, newer)
	if err != nil {
		return nil, err
	}
	out = &trial{ns: to, name: map[string]string{}, toks: record.Tokens{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
			out = nil
		}
	}()
	if err := to.Sweep(ctx, trialPrefix); err != nil {
		return out, err
	}
	prefix := trialPrefix + strings.ToLower(rand.Text()[:10]) + "."
	for _, f := range files {
		at := slices.IndexFunc(cfg.Kinds, func(k config.Kind) bool { return k.From == f.From && k.To == f.To })
		if at < 0 {
			return out, usage("%s: no entry of kinds has from: %s and to: %s, so that nothing says which indexes %s will have", cfg.Path, f.From, f.To, f.To)
		}
		info, err := from.Describe(ctx, record.KindSpec{Name: f.From, Fixed: true}, f.From)
		if err != nil {
			return out, err
		}
		carried, err := carries(cfg.Kinds[at], f.Lens)
		if err != nil {
			return out, fmt.Errorf("%s: %w", cfg.Path, err)
		}
		_, made := f.Lens.Kinds(f.From, f.To)
		for _, kind := range made {
			spec := record.KindSpec{Name: prefix + kind, Fixed: true}
			if c, ok := carried[kind]; ok {
				if spec.Shape, err = c.Shape(info.Shape); err != nil {
					return out, fmt.Errorf("%s: %w", cfg.Path, err)
				}
			}
			spec.Shape, _ = record.Unexpiring(spec.Shape)
			tok, err := to.Provision(ctx, spec, spec.Name)
			if err != nil {
				return out, fmt.Errorf("a collection like %s: %w", kind, err)
			}
			out.name[kind], out.toks[spec.Name] = spec.Name, tok
		}
	}
	return out, nil
}

// openQuietly opens the database of a version for what nobody else there should feel.
func openQuietly(ctx context.Context, cfg config.Config, version string) (*mongostore.Namespace, error) {
	at := slices.IndexFunc(cfg.DBs, func(db config.DB) bool { return db.APIVersion == version })
	c := databases.MongoConfig(cfg.DBs[at], "dbcontroller lens", zap.NewNop())
	c.Quiet = true
	ns, err := mongostore.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: dbs[%d], %s: %w", cfg.Path, at, version, err)
	}
	return ns, nil
}

// Try has each record inserted by itself.
func (t *trial) Try(ctx context.Context, rs []record.Record) ([]error, error) {
	b := record.Batch{Tokens: t.toks, Epoch: 1, Groups: make([]record.GroupWrite, len(rs))}
	for i, r := range rs {
		name, ok := t.name[r.Kind]
		if !ok {
			return nil, fmt.Errorf("nothing says which indexes %s will have", r.Kind)
		}
		b.Groups[i] = record.GroupWrite{Group: fmt.Sprint(i), Writes: []record.Write{{Kind: name, Key: r.Key, Doc: r.Doc}}}
	}
	results, err := t.ns.Load(ctx, b)
	if err != nil {
		return nil, err
	}
	out := make([]error, len(rs))
	for i, r := range results {
		if r.Outcome != record.Refused {
			continue // one with a name that is there collides, which is found without a database
		}
		out[i] = errors.New(strings.TrimPrefix(r.Err.Error(), "insert "+t.name[rs[i].Kind]+": "))
	}
	return out, nil
}

// close removes the collections.
func (t *trial) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(t.ns.Sweep(ctx, trialPrefix), t.ns.Close(ctx))
}
