package memstore

import (
	"context"

	"dbcontroller.dev/record"
)

const (
	defaultPage = 1000
	maxPage     = 16 << 20 // bytes
)

// Scan returns the next page of a range at one snapshot. It chooses the snapshot like Read.
func (s *Store) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	col, err := s.open(ctx, req.Token, s.resolve)
	if err != nil {
		return record.Page{}, err
	}
	defer s.cluster.mu.Unlock()
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	clock, err := s.cluster.snapshot(req.NotBefore)
	if err != nil {
		return record.Page{}, err
	}
	page := record.Page{Version: versionAt(clock), Done: true}
	size := 0
	for _, r := range col.within(req.Range) {
		rec, ok := r.record(req.Token.Kind, r.at(clock), req.Guards, req.KeysOnly)
		if !ok {
			continue
		}
		// A page has at least one record, however large that is.
		if len(page.Records) == limit || (size > 0 && size+len(rec.Doc) > maxPage) {
			// The record that does not fit begins the next page.
			page.Next, page.Done = record.Cursor(r.key), false
			break
		}
		size += len(rec.Doc)
		page.Records = append(page.Records, rec)
	}
	return page, nil
}
