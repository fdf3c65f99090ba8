package record

import "context"

// scanPage is how many records ScanPages reads at once.
const scanPage = 1000

// ScanPages calls use with the first records of a kind in the order of its scan, page by page:
// with so many of them, with all if limit is 0. An error of use ends it and is returned.
func ScanPages(ctx context.Context, from Reader, tok Token, limit int, use func(Page) error) error {
	var at Range
	for read := 0; ; {
		req := ScanRequest{Token: tok, Range: at, Limit: scanPage}
		if limit > 0 {
			req.Limit = min(scanPage, limit-read)
		}
		page, err := from.Scan(ctx, req)
		if err != nil {
			return err
		}
		if len(page.Records) > 0 {
			if err := use(page); err != nil {
				return err
			}
		}
		read += len(page.Records)
		if page.Done || limit > 0 && read >= limit {
			return nil
		}
		at.From = page.Next
	}
}
