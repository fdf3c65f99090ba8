package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/config"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/lint"
)

// trialPrefix begins the names of the collections that records are tried in. After it comes when
// they were made, and something random: two commands do not meet each other's. What a command
// that was killed has left, one removes that comes a day later.
const (
	trialPrefix = "dbc_lint_"
	trialAge    = 24 * time.Hour
)

// newTrial is a prefix for one command.
func newTrial(now time.Time) string {
	return fmt.Sprintf("%s%d_%s.", trialPrefix, now.Unix(), strings.ToLower(rand.Text()[:10]))
}

// leftTrials are the prefixes of trials among names of collections that are too old to run.
func leftTrials(names []string, now time.Time) (left []string) {
	for _, name := range names {
		trial, _, ok := strings.Cut(name, ".")
		made, _, _ := strings.Cut(strings.TrimPrefix(trial, trialPrefix), "_")
		at, err := strconv.ParseInt(made, 10, 64)
		if ok && strings.HasPrefix(trial, trialPrefix) && (err != nil || now.Sub(time.Unix(at, 0)) > trialAge) {
			left = append(left, trial+".")
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// trial is scratch collections in the new version's database, with the indexes and validators
// that its kinds will have.
type trial struct {
	ns   databases.Space
	own  string            // begins the names of its collections
	name map[string]string // of the collection that stands for a kind
	toks record.Tokens
}

// namer is a database whose collections can be listed; one without indexes has no trials.
type namer interface {
	Names(ctx context.Context, prefix string) ([]string, error)
}

func sweepLeft(ctx context.Context, ns databases.Space) error {
	of, ok := ns.(namer)
	if !ok {
		return nil
	}
	names, err := of.Names(ctx, trialPrefix)
	for _, left := range leftTrials(names, time.Now()) {
		if err == nil {
			err = ns.Sweep(ctx, left)
		}
	}
	return err
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
	out = &trial{ns: to, own: newTrial(time.Now()), name: map[string]string{}, toks: record.Tokens{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
			out = nil
		}
	}()
	if err := sweepLeft(ctx, to); err != nil {
		return out, err
	}
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
			spec := record.KindSpec{Name: out.own + kind, Fixed: true}
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
func openQuietly(ctx context.Context, cfg config.Config, version string) (databases.Space, error) {
	at := slices.IndexFunc(cfg.DBs, func(db config.DB) bool { return db.APIVersion == version })
	ns, err := databases.Open(ctx, cfg.DBs[at], databases.Config{App: "dbcontroller lens", Log: zap.NewNop(), Quiet: true}, cfg.Path)
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
	return errors.Join(t.ns.Sweep(ctx, t.own), t.ns.Close(ctx))
}
