"""Published tables, made again: networks and images of other papers' repositories, as .npz files in one folder."""
