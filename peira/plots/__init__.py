"""Windows onto run folders; they import no trainer."""
