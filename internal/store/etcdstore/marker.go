package etcdstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Identity returns the id of the cluster, and the identity that Identify created.
func (s *Store) Identity(ctx context.Context) (record.Identity, error) {
	resp, err := s.conn.Get(ctx, s.at.identity())
	if err != nil {
		return record.Identity{}, s.readError("identity", err)
	}
	// The header of any answer has the cluster's id.
	id := record.Identity{Cluster: strconv.FormatUint(resp.Header.GetClusterId(), 16)}
	if len(resp.Kvs) > 0 {
		id.Database = string(resp.Kvs[0].Value)
	}
	return id, nil
}

// Identify creates the identity of the namespace if it has none. It fails if another owner has keys
// below the prefix.
func (s *Store) Identify(ctx context.Context) (record.Identity, error) {
	for {
		id, err := s.Identity(ctx)
		if err != nil || id.Database != "" {
			return id, err
		}
		still, err := s.alone(ctx)
		if err != nil {
			return record.Identity{}, fmt.Errorf("identify: %w", err)
		}
		_, err = s.write(ctx, "identify", append(still, absent(s.at.identity())), []clientv3.Op{clientv3.OpPut(s.at.identity(), rand.Text())}, nil)
		// If the outcome is unknown, read the identity again: one of the writers has won.
		if err != nil && !readable(ctx, err) {
			return record.Identity{}, err
		}
	}
}

// mark is the stored form of a record.Mark.
type mark struct {
	Rev  int64    `bson:"rev"`
	Body bson.Raw `bson:"body,omitempty"`
}

// Marks returns the marks of all owners.
func (s *Store) Marks(ctx context.Context) ([]record.Mark, error) {
	resp, err := s.conn.Get(ctx, s.at.marks(), clientv3.WithPrefix())
	if err != nil {
		return nil, s.readError("marks", err)
	}
	var all []record.Mark
	for _, kv := range resp.Kvs {
		deployment, version, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.at.marks()), "/")
		// Names are encoded in the key, because they contain slashes.
		d, errD := base64.RawURLEncoding.DecodeString(deployment)
		v, errV := base64.RawURLEncoding.DecodeString(version)
		if err := errors.Join(errD, errV); err != nil {
			return nil, fmt.Errorf("mark %q: %w", kv.Key, err)
		}
		m, err := decoded[mark](fmt.Sprintf("mark %q", kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, record.Mark{Owner: record.Owner{Deployment: string(d), Version: string(v)}, Rev: m.Rev, Body: m.Body})
	}
	return all, nil
}

// PutMark compares the revision in the mark. The transaction also compares the revision of its key.
func (s *Store) PutMark(ctx context.Context, m record.Mark) error {
	key := s.at.mark(m.Owner)
	value, mod, err := s.get(ctx, "put mark", key)
	if err != nil {
		return err
	}
	var has mark
	if value != nil {
		if has, err = decoded[mark]("mark", value); err != nil {
			return err
		}
	}
	if has.Rev != m.Rev {
		return fmt.Errorf("mark of %s has revision %d, not %d: %w", m.Owner, has.Rev, m.Rev, record.ErrMismatch)
	}
	if m.Was != nil && !bytes.Equal(m.Was, has.Body) {
		return fmt.Errorf("mark of %s has another body at revision %d: %w", m.Owner, m.Rev, record.ErrMismatch)
	}
	next, err := bson.Marshal(mark{Rev: m.Rev + 1, Body: m.Body})
	if err != nil {
		return fmt.Errorf("put mark: %w", err)
	}
	// The revision of the key detects a write in between.
	resp, err := s.write(ctx, "put mark", []clientv3.Cmp{unchanged(key, mod)}, []clientv3.Op{clientv3.OpPut(key, string(next))}, nil)
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return fmt.Errorf("mark of %s has changed meanwhile: %w", m.Owner, record.ErrMismatch)
	}
	return nil
}

// Claim checks the name of the kind and the collection. The transaction compares both.
func (s *Store) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	for {
		err := s.claimOnce(ctx, tok, owner)
		if !errors.Is(err, errBehind) {
			return err
		}
	}
}

func (s *Store) claimOnce(ctx context.Context, tok record.Token, owner record.Owner) error {
	if _, err := s.Locate(ctx, tok.ID); err != nil {
		return fmt.Errorf("claim %s: %w", tok.Kind, err)
	}
	ofKind, mod, err := s.get(ctx, "claim", s.at.claim(tok.Kind))
	if err != nil {
		return err
	}
	ofID, modID, err := s.get(ctx, "claim", s.at.claimed(tok.ID))
	if err != nil {
		return err
	}
	// The claim is valid only if kind, collection and gate stay as they were read.
	cmps := []clientv3.Cmp{
		unchanged(s.at.claim(tok.Kind), mod), unchanged(s.at.claimed(tok.ID), modID),
		clientv3.Compare(clientv3.CreateRevision(s.at.gate(tok.ID)), ">", 0),
	}
	// The collection is claimed under another kind, so it belongs to that claim's owner.
	if ofID != nil && string(ofID) != tok.Kind {
		// Name the present owner in the error.
		has, _, err := s.get(ctx, "claim", s.at.claim(string(ofID)))
		if err != nil {
			return err
		}
		by, err := decoded[claim]("claim", has)
		if err != nil {
			return err
		}
		return &record.OwnedError{Kind: tok.Kind, ID: tok.ID, Owner: by.owner()}
	}
	var ops []clientv3.Op
	if ofKind != nil {
		has, err := decoded[claim]("claim", ofKind)
		if err != nil {
			return err
		}
		// The same claim exists already.
		if has.ID == tok.ID && has.owner() == owner {
			return nil
		}
		refused := &record.OwnedError{Kind: tok.Kind, ID: tok.ID, Owner: has.owner()}
		if has.owner() != owner || has.ID == tok.ID {
			return refused
		}
		// The owner may claim another collection only if the earlier one is gone.
		if _, err := s.Locate(ctx, has.ID); !errors.Is(err, record.ErrNotFound) {
			if err != nil {
				return err
			}
			refused.Has = has.ID
			return refused
		}
		cmps = append(cmps, absent(s.at.gate(has.ID)))
		ops = append(ops, clientv3.OpDelete(s.at.claimed(has.ID)))
	}
	value, err := bson.Marshal(claim{owner.Deployment, owner.Version, tok.ID})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	resp, err := s.write(ctx, "claim", cmps, append(ops,
		clientv3.OpPut(s.at.claim(tok.Kind), string(value)), clientv3.OpPut(s.at.claimed(tok.ID), tok.Kind)), nil)
	switch {
	case readable(ctx, err):
		return errBehind
	case err != nil:
		return err
	case !resp.Succeeded:
		return errBehind
	}
	return nil
}

// Claims returns all claims with the present names of their collections.
func (s *Store) Claims(ctx context.Context) ([]record.Claim, error) {
	// Read both at one revision, so that the names match the claims.
	resp, err := s.read(ctx, "claims", nil, []clientv3.Op{
		clientv3.OpGet(s.at.claims(), clientv3.WithPrefix()), clientv3.OpGet(s.at.gates(), clientv3.WithPrefix()),
	}, nil)
	if err != nil {
		return nil, err
	}
	names, bearers := map[string]string{}, map[string]string{}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		id, name := strings.TrimPrefix(string(kv.Key), s.at.gates()), string(kv.Value)
		names[id], bearers[name] = name, id
	}
	var all []record.Claim
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		c, err := decoded[claim](fmt.Sprintf("claim %q", kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		kind := strings.TrimPrefix(string(kv.Key), s.at.claims())
		all = append(all, record.Claim{Owner: c.owner(), Kind: kind, ID: c.ID, Name: names[c.ID], Bearer: bearers[kind]})
	}
	return all, nil
}

// Release removes the mark and the claims of an owner.
func (s *Store) Release(ctx context.Context, owner record.Owner) error {
	all, err := s.Claims(ctx)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpDelete(s.at.mark(owner))}
	flush := func() error {
		defer func() { ops = ops[:0] }()
		_, err := s.write(ctx, "release", nil, ops, nil)
		return err
	}
	for _, c := range all {
		if c.Owner != owner {
			continue
		}
		// etcd limits the operations of a transaction.
		if len(ops)+2 > s.most {
			if err := flush(); err != nil {
				return err
			}
		}
		ops = append(ops, clientv3.OpDelete(s.at.claim(c.Kind)), clientv3.OpDelete(s.at.claimed(c.ID)))
	}
	return flush()
}
