package record

import "context"

// scanPage is the number of records that ScanPages reads at once.
const scanPage = 1000

// ScanPages calls use with the first limit records of a kind, page by page, in scan order. 0: all
// records. ScanPages stops at an error of use and returns it.
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
		// A page may be empty without being the last one.
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
