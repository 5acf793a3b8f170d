// Package fence has the shape of the library's.
package fence

import "context"

type Fence struct{ Token, Floor int64 }

func From(ctx context.Context) (f Fence, err error) { return f, nil }
